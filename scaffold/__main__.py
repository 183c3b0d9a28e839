"""`python -m scaffold` is the command `scaffold`."""

from scaffold.cli import main

if __name__ == "__main__":
    main()
