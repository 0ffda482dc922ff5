"""Where the regions of a lab stand, and how long light in glass takes between them."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

EARTH_KM: Final = 6371.0

# Light in glass takes 5 µs for a kilometre, and cables are half as long again as the way of a bird.
MS_PER_KM: Final = 0.005 * 1.5


class City(NamedTuple):
    """A region's name and place."""

    name: str
    latitude: float
    longitude: float


CITIES: Final = (
    City("Frankfurt", 50.1, 8.7),
    City("Virginia", 39.0, -77.5),
    City("Singapore", 1.3, 103.8),
    City("São Paulo", -23.5, -46.6),
    City("Sydney", -33.9, 151.2),
    City("Mumbai", 19.1, 72.9),
    City("Tokyo", 35.7, 139.7),
    City("Johannesburg", -26.2, 28.0),
    City("Oregon", 45.6, -121.2),
    City("London", 51.5, -0.1),
    City("Dubai", 25.2, 55.3),
    City("Santiago", -33.4, -70.7),
)


def distance_km(a: City, b: City) -> float:
    """Along the surface of the earth."""
    north, south = math.radians(a.latitude), math.radians(b.latitude)
    east = math.radians(b.longitude - a.longitude)
    half = math.sin((south - north) / 2) ** 2
    half += math.cos(north) * math.cos(south) * math.sin(east / 2) ** 2
    return 2 * EARTH_KM * math.asin(math.sqrt(half))


def delay_ms(a: City, b: City) -> float:
    """One way, by cable."""
    return round(distance_km(a, b) * MS_PER_KM, 1)
