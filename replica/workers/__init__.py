"""Processes that share the work on one log: tasks go to them in order, and results come back in order.

    pool            WorkerPool: starts the processes, hands out tasks, and takes results
    worker_process  what a process runs
    task_messages   tasks and results on a socket; bytes of results in shared memory

This package knows nothing of logs.
"""
