"""`python -m editjudge` is the program `editjudge`."""

from editjudge.cli.main import main

if __name__ == "__main__":
    main()
