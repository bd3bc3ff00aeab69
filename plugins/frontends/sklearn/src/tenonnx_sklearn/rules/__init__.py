"""The rules of scikit-learn's own estimators, by family."""
