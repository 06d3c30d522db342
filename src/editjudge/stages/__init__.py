"""The stages of dvc.yaml, a module each: a pure function on values in memory and a small main()."""
