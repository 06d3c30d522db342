"""The program `editjudge`: a module a command, which parses its options, calls one function and prints."""
