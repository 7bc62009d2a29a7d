"""Stop words: few and closed-class, so that a search rarely loses a word that carries meaning.

English is the list of Lucene's ``EnglishAnalyzer`` (33 words). The other lists were written for
this package by the same measure: articles, prepositions, conjunctions, personal pronouns and
the commonest forms of *to be* and *to have*. A language without a list has no stop words.
"""

# ruff: noqa: RUF001  (Cyrillic letters that look like Latin ones)

from __future__ import annotations

_WORDS: dict[str, str] = {
    "english": (
        "a an and are as at be but by for if in into is it no not of on or such that the their "
        "then there these they this to was will with"
    ),
    "german": (
        "aber als am an auch auf aus bei bin bis das dass dem den der des die durch ein eine "
        "einem einen einer eines er es für hat ich ihr im in ist mit nach nicht noch nur oder "
        "sich sie sind so über um und uns unter vom von vor war was wenn wie wir wird zu zum zur"
    ),
    "french": (
        "a au aux avec ce ces dans de des du elle en est et eux il ils je la le les leur leurs "
        "lui mais me ne nous on ou où par pas pour qu que qui sa se ses son sont sur ta te tu un "
        "une vos votre vous y"
    ),
    "spanish": (
        "a al como con de del el ella ellas ellos en entre era es esta este esto la las le les "
        "lo los más me mi muy no nos o para pero por que se si sin sobre son su sus te tu un una "
        "unas uno unos y ya"
    ),
    "italian": (
        "a ad ai al alla alle allo anche che chi ci come con da dal dalla dei del della delle "
        "dello di e è ed gli ha i il in io la le lei lo loro lui ma me mi ne nei nel nella noi "
        "non o per più se si sono su sul sulla tra tu un una uno vi voi"
    ),
    "portuguese": (
        "a à ao aos as às com como da das de dele dela do dos e é ela elas ele eles em entre era "
        "essa esse esta este eu foi lhe mais mas me muito na não nas no nos o os ou para pela "
        "pelo por que se sem ser seu seus são só sua suas também te um uma você"
    ),
    "dutch": (
        "aan al als bij dat de der deze die dit door een en er had hebben het hij hoe ik in is "
        "je kan maar me met mijn naar niet nog nu of om onder ook op over te tot uit van voor "
        "was wat we wel werd wij worden zal ze zich zij zijn zo"
    ),
    "swedish": (
        "alla att av de dem den denna det detta du där efter eller en ett för från ha han har "
        "hon i in inte jag kan man med men mot nu när och om på sig sin ska som så till under "
        "upp ut var vi vid är över"
    ),
    "danish": (
        "af at blev da de dem den denne der det dette dig du efter eller en er et for fra han "
        "har hun i ikke jeg kan man med men mod ned nu når og om op over på sig som så til ud "
        "under var ved vi være"
    ),
    "norwegian": (
        "at av ble da de dem den denne der det dette du eller en er et etter for fra ha han har "
        "hun i ikke jeg kan man med men mot nå når og om opp over på seg som så til under ut var "
        "ved vi være"
    ),
    "finnish": (
        "ei eli en et että hän he ja jo joka jos kanssa kuin kun me minä mitä mutta myös ne niin "
        "nyt oli on ovat sekä se sinä tai te tämä vai"
    ),
    "russian": (
        "а без более бы был была были было быть в вам вас во вот все вы для до его ее если есть "
        "еще же за и из или им их к как ко ли мы на над не нет но о об он она они оно от по под "
        "при с со так также то только у что чтобы это этот я"
    ),
}

_QUERY_WORDS: dict[str, str] = {
    "english": (
        "what which who whom whose how when where why do does did can could should would has "
        "have had been am were i me my you your we our he him his she her its them"
    ),
    "german": (
        "welche welchem welchen welcher welches wer wen wem wessen wann warum wieso weshalb wo "
        "wofür womit kann kannst können könnte soll sollte muss hat habe haben hatte mein meine "
        "meinen meiner du dein deine ihre ihren gibt"
    ),
    "french": (
        "quel quelle quelles quels quoi quand comment pourquoi combien peut peux puis pouvez "
        "dois doit faut ai as avons avez ont sommes êtes mon ma mes ton tes notre nos elles toi "
        "moi"
    ),
    "spanish": (
        "qué cuál cuáles quién quiénes cómo cuándo dónde cuánto cuántos puede puedo pueden debe "
        "debo debería he has hay ha han tengo tiene tienen fue mis tus nuestro nuestra usted "
        "ustedes"
    ),
    "italian": (
        "quale quali quando dove perché cosa quanto quanti posso può possono devo deve dovrei "
        "ho hai abbiamo avete hanno sei siamo siete mio mia miei mie tuo tua nostro nostra"
    ),
    "portuguese": (
        "quê qual quais quem quando onde quanto quantos posso pode podem devo deve deveria há "
        "tenho tem têm foram meu meus minha minhas nosso nossa nós vocês"
    ),
    "dutch": (
        "welk welke wie waar wanneer waarom hoeveel kunnen kunt moet moeten mag heb heeft doet "
        "doe doen jij jouw jullie uw ons onze haar hun"
    ),
    "swedish": (
        "vad vem vems vilka vilken vilket var varför hur kunna skulle måste får hade mitt min "
        "mina din ditt dina vår vårt våra ni er"
    ),
    "danish": (
        "hvad hvem hvis hvilke hvilken hvilket hvor hvorfor hvordan hvornår kunne skulle skal må "
        "have havde min mit mine din dit dine vores"
    ),
    "norwegian": (
        "hva hvem hvilke hvilken hvilket hvor hvorfor hvordan når kunne skulle skal må hadde min "
        "mitt mine din ditt dine vår vårt våre"
    ),
    "finnish": (
        "mikä mitkä kuka ketkä milloin missä mistä mihin miksi miten kuinka voi voin voiko pitää "
        "onko olen olet olemme minun sinun meidän"
    ),
    "russian": (
        "какой какая какие какое каким кто кого кому чем чего когда где куда откуда почему зачем "
        "сколько может могу можно нужно должен мой моя мои твой наш ваш"
    ),
}

#: Full name of a language → its stop words in lower case, as they are written.
STOP_WORDS: dict[str, frozenset[str]] = {
    name: frozenset(words.split()) for name, words in _WORDS.items()
}
#: Full name of a language → words that make a question of a query and say nothing of its matter:
#: interrogatives, auxiliary verbs and pronouns. Documents keep them.
QUERY_WORDS: dict[str, frozenset[str]] = {
    name: frozenset(words.split()) for name, words in _QUERY_WORDS.items()
}
