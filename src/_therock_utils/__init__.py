"""Where a ROCm CI run's outputs live, and how they are stored and found.

Importing this package loads none of its modules, and its path modules load no third-party package.
"""
