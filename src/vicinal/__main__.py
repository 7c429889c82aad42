"""``python -m vicinal``: the same as the program ``vicinal``."""

from vicinal.cli import main

if __name__ == "__main__":
    main()
