"""Who runs the cells of a grid: this process, several of them, Slurm or Ray. All do the same, each cell by itself:
take the run's file lock, encode what the store lacks and nobody else has claimed, write the record. So nothing is
encoded or recorded twice, and a cell whose worker died is simply given to another one.
"""
