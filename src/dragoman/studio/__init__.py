"""Looking inside runs: views as plain records, the web page, and the local server.

``views`` describes a system or the folder of a run as ``records``, which cross to the browser as
JSON. Three modules are the doors for the command line: ``server`` serves runs on loopback, ``page``
makes one-file pages, and ``bundle`` knows the built page. The room may import every room but
``cli``, which alone imports it.
"""
