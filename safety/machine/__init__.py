"""One folder, many writers and readers, damage and kills between their steps: is what was acknowledged there?"""
