"""The report: what the jobs found, as one HTML file that needs nothing else.

    reading   result tables -> rows, bounded: what does not fit a page is left in the tables, and counted
    findings  rows -> who burns ids, why, what to do; in words
    charts    rows -> what plotly draws
    page      all of it -> the file, from templates/, with plotly.js, its charts and its style inside

Names of users, client ids and addresses come from clients: personal data, and hostile. `markup` makes the templates
escape all of it.
"""
