"""Rules of scikit-learn's estimators, by family."""
