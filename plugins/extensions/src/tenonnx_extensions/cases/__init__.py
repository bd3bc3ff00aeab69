"""Cases for the conformance kit, a module for each family."""
