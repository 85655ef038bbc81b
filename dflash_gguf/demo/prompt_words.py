"""The words that the demo's training prompts are put together from.

Comes in: nothing. Goes out: tables. Knows nothing of how they are joined.
"""

from __future__ import annotations

from typing import Final


def _listed(text: str, separator: str = ",") -> tuple[str, ...]:
    return tuple(" ".join(item.split()) for item in text.split(separator))


NAMES: Final = _listed(
    "Alma, Bruno, Celia, Dario, Edith, Felix, Gina, Hugo, Ida, Jonas, Klara, Luca, Marta, Nils, Oskar, Petra, Rafael, "
    "Selma, Theo, Ursula, Viktor, Wanda, Yara, Zoe"
)
CITIES: Final = _listed(
    "Athens, Bergen, Cairo, Dublin, Florence, Geneva, Hanoi, Istanbul, Kyoto, Lisbon, Montreal, Nairobi, Porto, Quito, "
    "Riga, Santiago, Tallinn, Utrecht, Warsaw, Zagreb"
)
KINDS: Final = _listed("parks, museums, bridges, markets, streets, cafes, churches, theatres, schools, hotels")
LANGUAGES: Final = ("Python", "JavaScript", "C", "Java", "Go")

SENTENCES: Final = (
    "The bakery on the corner sells fresh bread every morning.",
    "I will finish my homework before dinner.",
    "Ice melts when it gets warm enough.",
    "The bus to the airport leaves every twenty minutes.",
    "Nine old owls sat in the tall oak tree.",
    "Every long journey begins with one step.",
    "We sat by the lake and listened to the wind in the trees.",
    "Green is a calm color because it reminds me of the forest.",
    "The museum is closed on Mondays and open until six on other days.",
    "Please close the window before you go to bed.",
    "Two cats slept on the warm roof all afternoon.",
    "The meeting was moved to the small room upstairs.",
    "A good book is a friend that never leaves.",
    "She wrote a letter to her brother every week.",
)

LISTS: Final = _listed(
    "days of the week, months of the year, planets of the solar system, letters of the English alphabet, "
    "colors of the rainbow, first ten even numbers, first twenty odd numbers, continents of the world, "
    "seasons of the year, first twelve square numbers, first ten cube numbers, oceans of the world, "
    "first fifteen prime numbers, five senses, vowels of the English alphabet, first ten powers of two, "
    "strings of a violin, chess pieces, first ten letters of the Greek alphabet, countries of South America"
)

TASKS: Final = _listed(
    "adds two numbers, returns the largest element of a list, reverses a string, checks if a number is even, "
    "computes the factorial of n, sorts a list of numbers, counts the vowels in a string, prints the numbers up to n, "
    "converts Celsius to Fahrenheit, checks whether a word is a palindrome, sums the elements of a list, "
    "finds the smallest element, computes the average of a list, checks if a year is a leap year, "
    "counts the words in a text, prints the first n Fibonacci numbers, removes duplicates from a list, "
    "finds the greatest common divisor of two numbers, checks whether a number is prime, joins two strings, "
    "computes the area of a circle, prints a triangle of stars, swaps two variables, multiplies two matrices"
)

TOPICS: Final = _listed(
    "photosynthesis, the water cycle, gravity, volcanoes, earthquakes, honey bees, whales, the moon, the printing "
    "press, bread, coffee, tea, bicycles, trains, airplanes, electricity, magnets, vaccines, sleep, dreams, music, "
    "painting, chess, football, gardening, cooking, rivers, deserts, rain forests, glaciers, rainbows, thunderstorms, "
    "clouds, the heart, the brain, bones, friendship, patience, honesty, teamwork, money, trade, libraries, schools, "
    "maps, clocks, calendars, bridges, lighthouses, castles, computers, the internet, robots, telescopes, microscopes"
)

JOBS: Final = _listed(
    "a baker, a sailor, a teacher, a farmer, a doctor, a pilot, a carpenter, a librarian, a gardener, a painter, "
    "a clockmaker, a shepherd, a chemist, a bus driver, an old king, a young fox, a lost cat, a curious child"
)

GENERAL: Final = (
    "Explain {topic} in a few sentences.",
    "What should a beginner know about {topic}?",
    "Write a short story about {job}.",
    "Give me three facts about {topic}.",
    "Write a short poem about {topic}.",
    "What does {job} do all day?",
    "Write a letter from {job} to a friend.",
    "What makes {topic} important?",
    "Write a dialogue between {job} and a neighbor about {topic}.",
    "Tell me how {job} would describe {topic}.",
    "Name some advantages and disadvantages of {topic}.",
    "Summarize what is known about {topic}.",
)
