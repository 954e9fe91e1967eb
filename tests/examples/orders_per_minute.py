"""A Spark notebook in cells: from the binary log of the shop in `make demo` to a chart of its orders per minute.

    python orders_per_minute.py [orders.svg]

To read your own log, or a live source, change the second cell.
"""

# %% A session that knows the source mysql-binlog. It needs Java 17 and the extra [spark].
import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

import replica.demo
import replica.spark

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
builder = SparkSession.builder.master("local[2]").config("spark.sql.session.timeZone", "UTC")
spark = builder.config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()
replica.spark.register(spark)

# %% Every change of the table, each row as a VARIANT, so that columns may be added and dropped.
source = spark.read.format("mysql-binlog").option("includeTables", "shop.orders")
source.load(str(replica.demo.installed_log())).createOrReplaceTempView("changes")

# %% The number and the total value of new orders, by the minute in which they were committed.
per_minute = spark.sql("""
    SELECT date_format(ts, 'yyyy-MM-dd HH:mm') AS minute, count(*) AS orders,
           sum(variant_get(after, '$.total', 'decimal(10, 2)')) AS total
    FROM changes WHERE op = 'insert' GROUP BY minute ORDER BY minute
""")
per_minute.show()
rows = per_minute.collect()


# %% A chart with a bar for each minute, as an SVG file for any browser. In a notebook: display(SVG(chart)).
def bar_chart(bars: list[tuple[str, int]], title: str, width: int = 720, height: int = 240) -> str:
    step, scale = width / max(len(bars), 1), height / max((count for _, count in bars), default=1)
    parts = [f"<text x='0' y='16' font-size='16'>{title}</text>"]
    for number, (label, count) in enumerate(bars):
        x, top = number * step, 30 + height - count * scale
        parts.append(
            f"<rect x='{x:.1f}' y='{top:.1f}' width='{step * 0.8:.1f}' height='{count * scale:.1f}' fill='#4479a1'>"
            f"<title>{label}: {count}</title></rect>"
        )
        if number % 5 == 0:
            parts.append(f"<text x='{x:.1f}' y='{height + 46}'>{label[-5:]}</text>")
    head = f"<svg xmlns='http://www.w3.org/2000/svg' width='{width}' height='{height + 54}' "
    return head + "font-family='sans-serif' font-size='11'>" + "\n".join(parts) + "</svg>\n"


chart = bar_chart([(row["minute"], row["orders"]) for row in rows], "Orders per minute")
Path(sys.argv[1] if len(sys.argv) > 1 else "orders.svg").write_text(chart)
