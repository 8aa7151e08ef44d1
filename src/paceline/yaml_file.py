"""Files of settings in YAML. Knows nothing of the settings."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from paceline.errors import ConfigError

__all__ = ["read_mapping"]


def read_mapping(path: Path) -> dict[Any, Any]:
    """The keys and values of a YAML file; those of a section `training` as `training.KEY`.

    Raises:
        ConfigError: it cannot be read, is no mapping, or has a key twice.
    """
    import yaml

    try:
        with path.open(encoding="utf-8") as file:
            values = yaml.load(file, _loader(path))
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:  # dates and numbers that are none, and [[[[…
        raise ConfigError(f"{path} cannot be read: {error}.", remedy="Give a YAML file of settings.") from error
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise ConfigError(f"{path} holds {values!r:.40}.", remedy="Give lines such as 'steps: 100'.")
    return _flat(path, values)


def _loader(path: Path) -> Any:
    """What reads `path`: PyYAML's safe loader, with two of its habits changed."""
    import yaml

    class Loader(yaml.SafeLoader):  # type: ignore[misc]
        """YAML 1.1 takes 4e-3 for text, as it has no point; people who write it mean the number."""

        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
            """Of a key that is there twice, PyYAML takes the last value without a word."""
            lines: dict[str, int] = {}
            for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
                line = key.start_mark.line + 1
                if key.value in lines:
                    told = f"{path} sets {key.value} twice, in lines {lines[key.value]} and {line}."
                    raise ConfigError(told, remedy="Leave one out.", param=key.value)
                lines[key.value] = line
            values: dict[Any, Any] = super().construct_mapping(node, deep)
            return values

    number = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)[eE][-+]?\d+$")
    Loader.add_implicit_resolver("tag:yaml.org,2002:float", number, list("-+.0123456789"))
    return Loader


def _flat(path: Path, values: Mapping[Any, Any]) -> dict[Any, Any]:
    found: dict[Any, Any] = {}
    for key, value in values.items():
        new = {f"{key}.{name}": each for name, each in value.items()} if isinstance(value, dict) else {key: value}
        if twice := sorted(map(str, found.keys() & new.keys())):
            raise ConfigError(f"{path} sets {twice[0]} twice.", remedy="Leave one out.", param=twice[0])
        found |= new
    return found
