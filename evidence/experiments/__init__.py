"""Reading rows and papers from YAML files, and checking them without training."""
