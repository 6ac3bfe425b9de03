"""The guard's word lists: small, written by hand, English. A word that is missing costs a wrong hit at worst, one too
many a hit."""

from __future__ import annotations


def _split(words: str) -> list[str]:
    return words.split()


NEGATIONS = frozenset(
    _split("""
    not no never none nobody nothing nowhere neither nor cannot dont doesnt didnt isnt arent wasnt werent cant couldnt
    wont wouldnt shouldnt hasnt havent hadnt aint hardly barely rarely nicht kein keine keinen nie pas jamais nunca
""")
)
AUXILIARIES = frozenset(_split("is are was were do does did has have can could will would should"))
EXCLUSIONS = frozenset(
    _split("""
    without except excluding exclude excludes besides unless instead rather only other avoid avoids
    avoiding stop stops stopping ban bans banned prevent prevents self ex non ohne sans sin senza
""")
)

# Of each group one question may hold what the other does not, but not another one in its place.
OPPOSITES = tuple(
    tuple(group.split("/"))
    for group in _split("""
    before/after until/since earlier/later early/late first/last previous/next past/future old/new
    today/tomorrow/yesterday/tonight morning/afternoon/evening/night daily/weekly/monthly/quarterly/yearly
    hourly/daily/annual/monthly day/night winter/summer spring/autumn begin/end start/stop start/finish start/end
    resume/pause continue/stop begin/finish open/close opened/closed enable/disable activate/deactivate on/off
    up/down login/logout signin/signout optin/optout checkin/checkout clockin/clockout accept/decline full/part
    home/abroad online/paper online/phone adult/children spicy/mild allow/ban increase/decrease raise/lower
    rise/fall grow/shrink gain/lose win/lose speed/slow accelerate/decelerate expand/collapse extend/shorten
    lengthen/shorten widen/narrow strengthen/weaken add/remove add/delete add/subtract create/delete create/destroy
    insert/delete append/prepend include/exclude install/uninstall upgrade/downgrade import/export upload/download
    read/write send/receive push/pull get/set input/output encode/decode encrypt/decrypt compress/decompress
    zip/unzip lock/unlock block/unblock mute/unmute pin/unpin follow/unfollow subscribe/unsubscribe mount/unmount
    load/unload pack/unpack connect/disconnect attach/detach join/leave join/split merge/split merge/rebase
    merge/diff commit/revert do/undo undo/redo show/hide accept/reject approve/reject approve/deny allow/deny
    allow/block allow/forbid allow/prevent allowed/prohibited permit/forbid grant/revoke pass/fail succeed/fail
    success/failure left/right top/bottom upper/lower front/back inside/outside internal/external inner/outer
    above/below over/under north/south/east/west northern/southern/eastern/western inbound/outbound
    incoming/outgoing upstream/downstream horizontal/vertical row/column min/max minimum/maximum minimize/maximize
    minimal/maximal most/least more/less more/fewer best/worst better/worse good/bad high/low higher/lower
    highest/lowest large/small larger/smaller largest/smallest big/small bigger/smaller biggest/smallest long/short
    longer/shorter longest/shortest tall/short fast/slow faster/slower fastest/slowest heavy/light hot/cold
    hotter/colder warm/cool wet/dry hard/soft hard/easy difficult/easy simple/complex cheap/expensive
    cheapest/expensive rich/poor strong/weak young/old older/younger oldest/youngest oldest/newest deep/shallow
    near/far nearest/farthest closest/farthest wide/narrow thick/thin full/empty same/different positive/negative
    true/false always/never all/none all/some any/all everyone/nobody public/private local/remote local/global
    static/dynamic manual/automatic online/offline synchronous/asynchronous sync/async client/server
    frontend/backend host/guest parent/child master/slave primary/secondary source/target sender/receiver
    sender/recipient buy/sell buyer/seller purchase/sale lend/borrow lender/borrower deposit/withdraw
    withdrawal/deposit credit/debit asset/liability income/expense revenue/cost profit/loss import/export
    employer/employee landlord/tenant teacher/student doctor/patient male/female man/woman men/women boy/girl
    husband/wife father/mother son/daughter brother/sister king/queen cat/dog singular/plural noun/verb
    ascending/descending ascend/descend odd/even rational/irrational prime/composite mean/median/mode cause/prevent
    cause/effect cause/cure symptom/cause/treatment treat/cause advantage/disadvantage pro/con benefit/drawback
    benefit/risk strength/weakness attack/defend ally/enemy love/hate like/hate born/died birth/death alive/dead
    arrive/depart arrival/departure enter/leave enter/exit forward/backward forwards/backwards
    clockwise/counterclockwise legal/illegal breakfast/lunch/dinner single/married
    red/green/blue/yellow/black/white/orange/purple adult/child kid/adult divide/multiply sum/difference
    product/quotient sine/cosine/tangent integral/derivative area/perimeter/volume/circumference radius/diameter
    celsius/fahrenheit/kelvin domestic/international developer/user admin/user hardware/software temporary/permanent
    optional/required required/forbidden formal/informal gross/net fixed/variable
""")
)

# Directly before these, a word that makes the opposite of it.
OPPOSITE_PREFIXES = ("un", "non", "dis", "in", "im", "il", "ir", "mis", "de", "anti", "counter")

# The word that follows one of these plays a part that another word cannot take over.
ROLES = frozenset(
    _split("""
    from to into onto than before after over under versus vs of for by against with in on as
""")
)
DETERMINERS = frozenset(
    _split("""
    a an the my your our their his her its this that these those some any
""")
)

# In questions with one of these, both names play the same part.
SYMMETRIC = ("difference between", "differences between", "distance between", "similarities between", "in common")

# Names that people also write without a capital.
KNOWN_NAMES = frozenset(
    _split("""
    monday tuesday wednesday thursday friday saturday sunday january february april june july august september october
    november december christmas easter usd eur gbp jpy chf cny inr aud cad nzd sek nok dkk pln mxn brl krw zar btc eth
    dollar euro yen yuan rupee franc peso ruble bitcoin ethereum france germany italy spain portugal england britain
    scotland ireland wales poland austria switzerland belgium netherlands denmark sweden norway finland iceland greece
    hungary romania bulgaria ukraine russia usa america canada mexico brazil argentina chile peru colombia china japan
    korea india pakistan indonesia thailand vietnam malaysia singapore australia turkey iran iraq israel egypt morocco
    algeria nigeria kenya ethiopia ghana africa asia europe london paris berlin madrid rome vienna tokyo beijing
    moscow mars venus jupiter saturn mercury neptune uranus pluto moon sun earth english french german italian spanish
    portuguese dutch swedish danish norwegian finnish polish czech greek russian turkish arabic hebrew hindi chinese
    japanese korean latin american british canadian australian european asian african python java javascript
    typescript rust golang ruby perl php kotlin scala haskell matlab julia bash powershell linux ubuntu debian fedora
    windows macos ios android docker kubernetes podman terraform ansible jenkins github gitlab git postgres postgresql
    mysql sqlite mongodb redis kafka rabbitmq elasticsearch cassandra oracle nginx apache aws azure gcp numpy pandas
    pytorch tensorflow react vue angular svelte django flask fastapi rails spring laravel firefox chrome safari excel
    word powerpoint outlook gmail slack teams zoom whatsapp facebook instagram twitter youtube netflix spotify amazon
    google apple microsoft samsung iphone ipad pixel json xml yaml csv html css sql pdf png jpg jpeg gif svg mp3 mp4
    docx xlsx http https ftp ssh tcp udp smtp imap rest grpc graphql
""")
)

# Capitalised without being a name.
NO_NAMES = frozenset(
    _split("""
    i a an the and or but if in on at to of for from with by as is are was were be do does did can could will would
    should what when where who why how which whose please thanks hi hello ok okay yes no not it he she we they you my
    your
""")
)

NUMBER_WORDS = {
    word: str(value)
    for value, word in enumerate(
        _split("""
    zero _ two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen
    eighteen nineteen twenty
""")
    )
    if word != "_"  # "one" is a pronoun more often than a number
} | {
    "thirty": "30",
    "forty": "40",
    "fifty": "50",
    "sixty": "60",
    "seventy": "70",
    "eighty": "80",
    "ninety": "90",
    "hundred": "100",
    "thousand": "1000",
    "million": "million",
    "billion": "billion",
    "trillion": "trillion",
    "dozen": "12",
    "half": "half",
    "third": "3rd",
    "fourth": "4th",
    "fifth": "5th",
    "twice": "2x",
    "double": "2x",
    "triple": "3x",
}

# Units by what people write; the value is what is compared.
UNITS = {
    written: unit
    for unit, spellings in {
        "%": "percent pct %",
        "usd": "$ usd dollar dollars",
        "eur": "€ eur euro euros",
        "gbp": "£ gbp pound-sterling",
        "jpy": "¥ jpy yen",
        "kg": "kg kgs kilo kilos kilogram kilograms",
        "g": "g gram grams",
        "mg": "mg milligram milligrams",
        "lb": "lb lbs pound pounds",
        "oz": "oz ounce ounces",
        "km": "km kms kilometer kilometers kilometre kilometres",
        "m": "m meter meters metre metres",
        "cm": "cm centimeter centimeters centimetre centimetres",
        "mm": "mm millimeter millimeters millimetre millimetres",
        "mile": "mi mile miles",
        "ft": "ft foot feet",
        "inch": "inch inches",
        "yard": "yd yard yards",
        "l": "l liter liters litre litres",
        "ml": "ml milliliter milliliters millilitre millilitres",
        "gallon": "gal gallon gallons",
        "cup": "cup cups",
        "ms": "ms millisecond milliseconds",
        "s": "s sec secs second seconds",
        "min": "min mins minute minutes",
        "h": "h hr hrs hour hours",
        "day": "d day days",
        "week": "week weeks",
        "month": "month months",
        "year": "y yr yrs year years",
        "°c": "°c c celsius centigrade",
        "°f": "°f f fahrenheit",
        "degree": "° degree degrees",
        "kb": "kb kilobyte kilobytes",
        "mb": "mb megabyte megabytes",
        "gb": "gb gigabyte gigabytes",
        "tb": "tb terabyte terabytes",
        "k": "k",
        "am": "am a.m",
        "pm": "pm p.m",
        "x": "x times",
        "mph": "mph",
        "kmh": "kmh km/h kph",
        "st": "st",
        "nd": "nd",
        "rd": "rd",
        "th": "th",
        "w": "w watt watts",
        "kw": "kw kilowatt kilowatts",
        "kwh": "kwh",
        "v": "v volt volts",
    }.items()
    for written in spellings.split()
}
