"""The report: what the jobs found, as one HTML file that needs nothing else.

    reading   result tables -> rows, bounded: what does not fit a page is left in the tables, and counted
    findings  rows -> who burns ids, why, what to do; in words
    sections  rows -> the parts of the page (overview, user_pages, advice, accuracy, blocks, failover)
    page      parts -> the file, with plotly.js, its charts and its style inside

Names of users, client ids and addresses come from clients: personal data, and hostile. All text goes through `markup`.
"""
