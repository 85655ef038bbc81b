"""How other engines are launched with a drafter: one table of engines, and the line that is right for one pair."""
