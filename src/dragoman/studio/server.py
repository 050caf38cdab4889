"""The studio's server, on loopback only. Every body is JSON but an upload's; every record is in ``records.py``.

    GET  /                              the page
    GET  /api/runs                      → Run[]
    GET  /api/runs/{id}/training        ?after=BYTES → Training: what happened since
    GET  /api/runs/{id}/audit           → Audit
    GET  /api/runs/{id}/settings        → Settings
    POST /api/runs/{id}/predict         PredictRequest → Prediction
    POST /api/runs/{id}/tree            PredictRequest → Tree: of the same search
    POST /api/runs/{id}/attention       AttentionRequest → Attention: all layers and heads at once
    POST /api/runs/{id}/errors          FileRequest → Errors
    POST /api/runs/{id}/map             MapRequest → RepresentationMap
    POST /api/runs/{id}/neighbours      NeighboursRequest → Neighbours
    POST /api/compare                   CompareRequest → Comparison
    POST /api/upload?name=NAME          the bytes of a file → Upload
    GET  /api/uploads/{id}              the bytes again

``{id}`` is ``Run.id``. What a person can mend is answered with 400 and a ``Problem``, an unknown run or upload with 404,
an upload that is too large with 413, a request from another site or for another host with 403.
"""
