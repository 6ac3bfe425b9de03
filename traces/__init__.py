"""What arrives: readers for real traces, synthetic and composed workloads, workload analysis."""
