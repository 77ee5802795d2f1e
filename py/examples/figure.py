"""From nothing to a figure: how write amplification comes to rest, by policy."""
import matplotlib.pyplot as plt, vellum
for run in vellum.compare("zipf", "emmc", ["base", "vellum"], op=28, capacity="1G", precondition="fill"):
    plt.plot("host_written_blocks", "write_amplification_within", data=run.steps, label=run.policy)
plt.legend()
plt.savefig("figure.png")
