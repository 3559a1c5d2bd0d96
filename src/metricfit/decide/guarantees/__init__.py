"""Requirements that hold on new rows with a given probability: exact bounds, and tests in a fixed sequence."""
