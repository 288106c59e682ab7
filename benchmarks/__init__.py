"""What is measured of the library; README.md says how, `evidence.study` is what all share."""
