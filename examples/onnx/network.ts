// The weights of a small convolutional network that tells the direction of lines in a picture. They are
// written by hand; a real network has learned them.

export const LABELS = ['horizontal', 'vertical', 'falling', 'rising'] as const;

/** For each label the 3 × 3 pixels to which its filter responds most: a line in this direction. */
export const FILTERS: readonly (readonly number[])[] = [
  [-1, -1, -1, 2, 2, 2, -1, -1, -1],
  [-1, 2, -1, -1, 2, -1, -1, 2, -1],
  [2, -1, -1, -1, 2, -1, -1, -1, 2],
  [-1, -1, 2, -1, 2, -1, 2, -1, -1],
];

/** How much the response of a filter counts for its own label, and against the others. */
const SCORES = { own: 2, other: -1 };

/** One row for each filter, one column for each label. */
export const DENSE: readonly (readonly number[])[] = FILTERS.map((_, row) =>
  LABELS.map((_, column) => (row === column ? SCORES.own : SCORES.other)),
);

/** Diagonals respond less: their pixels touch at corners only. */
export const BIAS: readonly number[] = [0, 0, 0.1, 0.1];
