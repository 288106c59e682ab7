from .bradley_terry import BradleyTerry as BradleyTerry
