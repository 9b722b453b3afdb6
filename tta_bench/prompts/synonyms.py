"""Words that name a class of VOC, COCO or NUS-WIDE in a caption, beside the class's own name."""

from __future__ import annotations

SYNONYMS: dict[str, tuple[str, ...]] = {
    "person": (
        *("man", "woman", "boy", "girl", "child", "kid", "baby", "toddler", "lady", "guy", "gentleman", "people"),
        *("adult", "teenager", "human", "pedestrian", "passenger", "rider", "cyclist", "skier", "snowboarder"),
        *("surfer", "skateboarder", "player", "batter", "pitcher", "catcher", "umpire", "chef", "waiter", "waitress"),
        *("farmer", "worker", "policeman", "officer", "soldier", "student", "tourist", "bride", "groom", "couple"),
    ),
    "bicycle": ("bike", "cycle"),
    "motorcycle": ("motorbike", "moped", "scooter"),
    "motorbike": ("motorcycle", "moped", "scooter"),
    "airplane": ("aeroplane", "plane", "aircraft", "jet", "airliner", "jetliner"),
    "aeroplane": ("airplane", "plane", "aircraft", "jet", "airliner", "jetliner"),
    "car": ("automobile", "sedan", "taxi", "cab", "suv", "jeep"),
    "bus": ("minibus", "double decker"),
    "train": ("locomotive", "tram", "railcar"),
    "truck": ("lorry", "pickup", "fire engine"),
    "boat": ("ship", "canoe", "kayak", "sailboat", "ferry", "yacht", "dinghy"),
    "traffic light": ("stoplight", "traffic signal", "stop light"),
    "fire hydrant": ("hydrant",),
    "bird": ("duck", "goose", "seagull", "gull", "pigeon", "parrot", "owl", "eagle", "swan", "chicken", "penguin"),
    "cat": ("kitten", "kitty"),
    "dog": ("puppy", "pup", "hound", "terrier", "retriever"),
    "horse": ("pony", "mare", "stallion", "foal"),
    "sheep": ("lamb", "ram", "ewe"),
    "cow": ("cattle", "bull", "calf", "ox", "steer"),
    "bear": ("cub", "panda"),
    "backpack": ("rucksack", "knapsack"),
    "handbag": ("purse", "pocketbook"),
    "tie": ("necktie", "bow tie"),
    "suitcase": ("luggage", "baggage"),
    "sports ball": ("ball", "soccer ball", "tennis ball", "football", "basketball", "baseball", "volleyball"),
    "baseball bat": ("bat",),
    "baseball glove": ("mitt", "glove"),
    "skateboard": ("skate board", "longboard"),
    "surfboard": ("surf board",),
    "tennis racket": ("racket", "racquet", "tennis racquet"),
    "bottle": ("flask",),
    "wine glass": ("goblet", "wineglass"),
    "cup": ("mug", "teacup"),
    "couch": ("sofa", "loveseat", "settee"),
    "sofa": ("couch", "loveseat", "settee"),
    "chair": ("armchair", "stool", "seat", "recliner"),
    "potted plant": ("plant", "houseplant", "flowerpot"),
    "dining table": ("table", "desk"),
    "bed": ("mattress",),
    "tv": ("television", "tv monitor", "monitor"),
    "tvmonitor": ("tv", "television", "tv monitor", "monitor"),
    "toilet": ("commode", "urinal"),
    "laptop": ("notebook computer", "laptop computer"),
    "mouse": ("computer mouse",),
    "remote": ("remote control",),
    "cell phone": ("phone", "cellphone", "smartphone", "mobile phone", "telephone"),
    "oven": ("stove",),
    "refrigerator": ("fridge", "freezer"),
    "donut": ("doughnut",),
    "hot dog": ("hotdog", "frankfurter"),
    "vase": ("urn",),
    "teddy bear": ("teddy", "stuffed bear", "stuffed animal"),
    "hair drier": ("hair dryer", "blow dryer", "hairdryer"),
    "pottedplant": ("potted plant", "plant", "houseplant"),
    "diningtable": ("dining table", "table", "desk"),
    "buildings": ("building", "house", "skyscraper"),
    "birds": ("bird", "duck", "seagull"),
    "flowers": ("flower", "blossom"),
    "ocean": ("sea",),
    "leaf": ("foliage",),
    "police": ("policeman", "officer"),
    "road": ("street",),
    "vehicle": ("car", "truck", "bus"),
}

_IRREGULAR = {
    "man": "men",
    "woman": "women",
    "child": "children",
    "person": "persons",
    "people": "people",
    "sheep": "sheep",
    "mouse": "mice",
    "knife": "knives",
    "calf": "calves",
    "goose": "geese",
    "ox": "oxen",
    "cattle": "cattle",
    "policeman": "policemen",
    "gentleman": "gentlemen",
    "leaf": "leaves",
    "luggage": "luggage",
    "baggage": "baggage",
    "aircraft": "aircraft",
}


def plural(word: str) -> str:
    """The plural of an English noun, of whose words the last is inflected."""
    start, space, last = word.rpartition(" ")
    if last in _IRREGULAR:
        last = _IRREGULAR[last]
    elif last.endswith(("s", "x", "z", "ch", "sh")):
        last += "es"
    elif last.endswith("y") and last[-2:-1] not in "aeiou":
        last = f"{last[:-1]}ies"
    else:
        last += "s"
    return f"{start}{space}{last}"
