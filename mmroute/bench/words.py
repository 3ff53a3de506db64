"""Text that no cache has seen as a whole: English words, or words that do not exist.

Encoders remember words. A text of common words is encoded mostly from such a memory, as prose is
in production; a text of new words is encoded without, which is the worst case.
"""

from __future__ import annotations

import random
from itertools import accumulate
from typing import Final

__all__ = ["english", "unseen"]

_COMMON: Final = """the of and to in is that it for was on with as be at by this had not are but
from or have an they which one you were all her she there would their we him been has when who
will no more if out so up said what its about than into them can only other time new some could
these two may first then do any like my now over such our man me even most made after also well
did many before must through back years where much your way down should because long each just
state those people how too little good world make very year still see own work men day get here
between both life being under never last another while might us great old come since against
right three states himself few use during without place again home around small found thought
went say part once general high upon school every don't does got united number hand course war
until always away something fact water less public put think almost enough took head far yet
better set told nothing night end why called didn't eyes find asked look later going knew next
program city business give group toward young days let room side social given several order
second possible rather per face among often early white case large need four within big became
best felt light thing children mind kind hand open seemed whole along across"""
_NOUNS: Final = """account action address agreement animal answer apartment area argument article
attempt bank beach bedroom bird board boat bottle bottom boundary branch bridge brother budget
building camera capital carbon castle chair chapter charge circle citizen claim climate clock
cloud coat column comment committee community company computer concept condition contract corner
cottage council country customer danger daughter decade decision degree department design desk
detail device dinner direction doctor document dollar door draft drawing dream driver edge editor
effort election engine evening event example experiment factor failure farmer feature field
figure finger flight floor flower forest frame friend garden glass guest harbour height holiday
horse hospital hotel image index instrument interest island journal journey kitchen label ladder
lamp language laptop lawyer layer leader lesson letter library limit machine manager market
material measure medicine meeting member memory message method middle minute mirror model moment
month morning mother motor mountain museum neighbour network notice novel object ocean office
officer opinion orange paper parent partner passage patient pattern payment pencil period
photograph picture planet platform player pocket poem point policy position potato power price
problem process product professor project promise property protein question radio railway reader
reason record region report request resource result river rocket sailor sample scale scene
scientist season secret section segment sentence sequence series server service shadow shelf
shoulder signal silver sister soldier solution source speaker spring station statement storm
story stranger street student subject summer surface system table teacher temperature theory
thread ticket tower train tree trial university valley value vehicle version village visitor
voice volume wagon wall weather weekend wheel widow window winter witness wonder worker writer"""
_VERBS: Final = """accept add adopt appear arrive ask attach avoid borrow call carry change clean
climb collect compare complete connect consider contain cook count cover create cross deliver
depend describe destroy develop discover discuss divide draw employ encourage enjoy enter examine
expand expect explain express fail fill finish follow gather guess handle happen help hope
imagine improve include increase inform invite join judge jump kick knock learn lift listen load
lock manage mark matter measure mention move need notice obtain offer open paint pass perform
place plan point prefer prepare present prevent produce protect prove publish push reach receive
recommend reduce refuse remain remember remove repair repeat replace reply represent require
return search separate serve share shout show solve start suggest support suppose talk taste test
touch train travel treat turn visit wait walk want warn wash watch wish work"""
_SYLLABLES: Final = """ba be bi bo bu ca ce co cu da de di do du fa fe fi fo ga ge go ha he hi
ho ja ka ke ki la le li lo lu ma me mi mo mu na ne ni no nu pa pe pi po ra re ri ro ru sa se si
so su ta te ti to tu va ve vi vo wa we za ze zo"""
_SENTENCE: Final = 12  # words
_SYLLABLES_OF_A_WORD: Final = 4


def _with_endings(words: str, *endings: str) -> list[str]:
    """Every word with every ending; the e before a vowel goes."""
    found = []
    for word in words.split():
        for ending in endings:
            stem = word[:-1] if ending[:1] in ("e", "i") and word.endswith("e") else word
            found.append(stem + ending)
    return found


def _ranked() -> list[str]:
    """Function words first; what follows is in no order of meaning, so that no kind is rare."""
    content = [*_with_endings(_NOUNS, "", "s"), *_with_endings(_VERBS, "", "s", "ed", "ing")]
    random.Random(0).shuffle(content)
    return list(dict.fromkeys([*_COMMON.split(), *content]))


_WORDS: Final = _ranked()
# The k-th most common word of a language is about 1/k as common as the first.
_WEIGHTS: Final = list(accumulate(1 / (rank + 3) for rank in range(len(_WORDS))))


def english(chooser: random.Random, count: int) -> str:
    """Sentences of `count` words in all, as often as English has common and rare ones.

    >>> english(random.Random(0), 6).count(" ")
    5
    """
    words = chooser.choices(_WORDS, cum_weights=_WEIGHTS, k=count)
    for start in range(0, count, _SENTENCE):
        words[start] = words[start].capitalize()
        end = min(start + _SENTENCE, count) - 1
        words[end] += "."
    return " ".join(words)


def unseen(chooser: random.Random, count: int) -> str:
    """`count` words of which hardly one occurs twice."""
    parts = chooser.choices(_SYLLABLES.split(), k=count * _SYLLABLES_OF_A_WORD)
    step = _SYLLABLES_OF_A_WORD
    return " ".join("".join(parts[at : at + step]) for at in range(0, len(parts), step))
