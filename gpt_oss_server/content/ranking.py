"""How a search of vector stores ranks passages, as requests write it. A fault is a 400 that names it."""

from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from gpt_oss_server.errors import InvalidRequest, UnsupportedField
from gpt_oss_server.http.fields import Body, Number, optional, required
from gpt_oss_server.http.validation import sentence_for
from gpt_oss_server.stores.vector_stores import Ranking


class Hybrid(Body):
    embedding_weight: Annotated[Number, Field(ge=0)] = required("The weight of the ranking by vectors.")
    text_weight: Annotated[Number, Field(ge=0)] = required("The weight of the ranking by words.")


class RankingOptions(Body):
    hybrid_search: Hybrid | None = optional(
        "The weights, where the server has embeddings; 1 and 1 by default."
    )
    ranker: Literal["none", "auto", "default-2024-11-15"] | None = optional(
        "`none` leaves out the reranker, if the server has one; any other uses it."
    )
    score_threshold: Annotated[Number, Field(ge=0, le=1)] | None = optional("Passages below it are left out.")


def read_ranking(options: Any, where: str) -> Ranking:
    try:
        read = RankingOptions.model_validate({} if options is None else options)
    except ValidationError as error:
        raise InvalidRequest.at(where, f"is wrong. {sentence_for(error)[0]}") from None
    ranking = Ranking(reranks=read.ranker != "none", least=read.score_threshold or 0)
    if (weights := read.hybrid_search) is None:
        return ranking
    if not weights.embedding_weight + weights.text_weight:
        raise InvalidRequest(f"`{where}.hybrid_search` must have a weight above 0.", param=where)
    return replace(ranking, **weights.model_dump(include=set(Hybrid.model_fields)), is_chosen=True)


def check_ranking(ranking: Ranking, *, embeds: bool, param: str) -> None:
    """Refuses weights where the server has no embeddings."""
    if ranking.is_chosen and not embeds:
        problem = "This server does not serve `hybrid_search`: it ranks texts by their words alone"
        raise UnsupportedField(f"{problem}. Start it with --embeddings URL.", param=param)
