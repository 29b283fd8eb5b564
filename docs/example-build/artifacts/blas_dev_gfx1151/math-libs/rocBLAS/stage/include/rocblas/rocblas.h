#pragma once
int rocblas_k0(int x);
