"""What an author does about a check that fails, by kind of plugin and check."""

from __future__ import annotations

ANY_CHECK = "most checks end in this error, so look for it in your code and not in what is checked"
WELL_FORMED = "return finite logits [C] or [B, C] from step and [N, C] from finish"

METHODS = {
    "hyper-parameters are plain data": "make each field a number, text, bool or list of them, with "
    "@dataclass above the class; load files in start()",
    "scores on structured features": f"{WELL_FORMED}: divide by x + 1e-8, take log(p + 1e-30)",
    "scores on random features": f"{WELL_FORMED}, also when no class is likely and a cache or mask is empty",
    "reads no labels": "use x.index, x.image, x[role] and x.pixels(role) only: there is nothing else to know",
    "leaves its inputs alone": "write `a = a + b` or clone() before add_, mul_, sort_ or an assignment to a slice",
    "class order does not matter": "treat all classes alike: no class numbers in formulas, no draws from task.rng per "
    "class, and no argmax among classes that are equal",
    "start() forgets": "set all that step() changes anew in start(), also lists and what stands on the class",
    "deterministic": "draw from task.rng: torch.randn(n, generator=self.task.rng); use no clock and no set's order",
    "state survives a restart": "keep all that step() changes as attributes without a leading underscore, made in "
    "start(): tensors, numbers, texts, lists, dicts",
    "memory does not grow": "bound what is kept: a running mean, or a cache of fixed size instead of a list of all "
    "images",
    "1 class": "a task may have a single class: don't take the second best, nor a deviation over classes",
    "original view only": "x[role] may have no rows [0, D]: put x.image in front, torch.cat([x.image[None], x[role]])",
    "1 view": "x[role] may have one row: no deviation over views, and max(1, int(share * V)) of them",
    "5 views": "take a share of the rows that there are, and no fixed number: max(1, int(share * V))",
    "duplicate classes": "two classes may have the same text: don't divide by their distance, nor invert their Gram "
    "matrix without a ridge",
    "50 identical regions": "all regions may be the same: don't divide by their deviation without an epsilon",
    "all images equal": "the stream may repeat one image: don't divide by the distance to a cache or mean without an "
    "epsilon",
}

DATASETS = {
    "it opens": "raise DataMissing, BadData or UsageError for what a user can mend; this is an error of open()",
    "it has images": "raise BadData in open(), naming the list or folder that is empty",
    "class names are unique": "set class_names to a tuple of different words, as they are to stand in a prompt",
    "ids are unique texts": "use the path below the dataset's folder, str(file.relative_to(folder))",
    "labels are 1, 0 or -1": "keep them as np.array(rows, dtype=np.int8), one column for each of class_names",
    "labels say something": "write absent as 0, leave images out that have nothing but -1, and compare your label "
    "table's names with class_names",
    "the end raises IndexError": "begin __getitem__ with `if not 0 <= i < len(self): raise IndexError(i)`",
    "nothing is decoded early": "hand over Sample(id, functools.partial(decode, file), labels) and open images in "
    "decode alone",
    "images are RGB, twice the same": "end load with `return Image.open(file).convert('RGB')`: a new one each time, "
    "with nothing random in it",
    "same again when opened again": "use sorted(folder.glob(…)) and sorted(names): folders and sets have no order",
    "fingerprint is stable": "make it of ids and file contents or sizes with hashlib, not of hash(), times or paths",
    "fingerprint is sensitive": "put the variant, or the ids and contents of its images, into the fingerprint",
    "unknown variants are refused": 'begin open with `if variant not in cls.variants: raise UnknownName("variant", '
    "variant, cls.variants)`",
    "optional members fit": "see DatasetExtras in tta_bench.interfaces, or leave the member out",
}

FEATURES = "end with `normalize(features.float(), dim=-1)` below @torch.no_grad(), as wide as embed_dim"

BACKBONES = {
    "it loads": "raise WeightsMissing or UsageError for what a user can mend; this is an error of load()",
    "preprocess makes sense": 'write preprocess = Preprocess(SIZE, "bicubic" or "bilinear", "shortest" or "squash")',
    "logit scale and bias": "set plain floats: float(model.logit_scale.exp()), and 0.0 where there is no bias",
    "image features": f"{FEATURES}; black and white images are images, too",
    "text features": f"{FEATURES}; texts may be empty, very long or in any language: cut them, never refuse",
    "the batch does not matter": "call model.eval(), and let no statistic or padding reach over the batch",
    "deterministic": "call model.eval(), and draw nothing while encoding",
    "tells inputs apart": "look whether the weights were loaded and the inputs are used at all",
    "leaves its inputs alone": "whiten with (pixels - mean) / std, not with sub_ and div_: the caller still has them",
    "fingerprint is stable": "make it of the weights' bytes with hashlib, not of hash(), times or addresses",
    "fingerprint knows the precision": "add the precision to what the fingerprint is made of",
    "fingerprint knows the weights": "hash the weights file, or every tensor of the state_dict",
    "a context of words is the words": 'let encode_context follow encode_texts of "<context> <name>." step by step, '
    "without no_grad or detach",
    "untrained says so": "set random_weights = True in random(), and nowhere else",
}

REMEDIES = {"methods": METHODS, "datasets": DATASETS, "backbones": BACKBONES}
