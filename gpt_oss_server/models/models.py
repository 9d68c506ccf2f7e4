"""The models of one server, side by side: a request names one, or takes the first that its key may use."""

from collections.abc import Sequence

from gpt_oss_server.errors import ApiError, ModelNotAllowed, ModelNotServed
from gpt_oss_server.models.model import Model
from gpt_oss_server.settings import SettingsError

Allowed = frozenset[str] | None
"""The names of the models that a key may use; None: all."""


class Models:
    def __init__(self, models: Sequence[Model]) -> None:
        """Raises `SettingsError` for a name that two models have."""
        self.all = tuple(models)
        self._by_name: dict[str, Model] = {}
        self._catch_all = next((model for model in self.all if model.takes_any_name), None)
        for model in self.all:
            for name in model.names:
                if name in self._by_name:
                    raise SettingsError(f"Two models have the name {name!r}. Give one of them another.")
                self._by_name[name] = model

    @property
    def first(self) -> Model:
        return self.all[0]

    @property
    def all_names(self) -> list[str]:
        return [*self._by_name]

    def names(self, may_use: Allowed) -> dict[str, Model]:
        """The listed names of the models that the key may use."""
        return {name: model for name, model in self._by_name.items() if _allows(may_use, model)}

    def named(self, name: str | None) -> Model:
        """The model of this name, for what does not sample; the first where the name is not known."""
        return self._by_name.get(name or "") or self._catch_all or self.first

    def chosen(self, name: str | None, may_use: Allowed) -> Model:
        """The model that a request of the key means."""
        model = self._by_name.get(name) if name else self.first
        if model is not None and may_use is None:
            return model
        allowed = self.names(may_use)
        if name is None and allowed:
            return next(iter(allowed.values()))
        if (model := model or self._catch_all) is None:
            raise ModelNotServed(
                f"The model {name!r} is not served here. Served: {', '.join(allowed)}. "
                "Leave `model` out for the default, or start the server with --served-model-name.",
                param="model",
            )
        if not _allows(may_use, model):
            may = (
                f"Choose one of {', '.join(allowed)}" if allowed else "Ask the server's operator to allow one"
            )
            raise ModelNotAllowed(
                f"This API key may not use the model {name or model.name!r}. {may}.", param="model"
            )
        return model

    def check_room(self) -> None:
        """Refuses if each model would refuse a request now, with the first one's reason."""
        first_error: ApiError | None = None
        for model in self.all:
            try:
                return model.check_room()
            except ApiError as error:
                first_error = first_error or error
        assert first_error is not None
        raise first_error


def _allows(may_use: Allowed, model: Model) -> bool:
    return may_use is None or not may_use.isdisjoint(model.names)
