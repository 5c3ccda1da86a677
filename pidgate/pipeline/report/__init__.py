"""The report: the jobs' results as one self-contained HTML file.

    reading   result tables -> bounded rows; the rest stays in the tables and is counted
    findings  rows -> findings, causes and remedies as text
    charts    rows -> SVG paths and labels
    page      everything -> the file, from templates/, with script and style

Names of users, client ids and addresses come from clients: personal and hostile data. `page` makes the
templates escape all of it.
"""
