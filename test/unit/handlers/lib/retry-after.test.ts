import { describe, expect, it } from 'vitest';
import { isTransient } from '../../../../handlers/lib/retry-after.ts';

describe('isTransient', () => {
  it('is true for overload and server errors, false for client errors', () => {
    expect([408, 425, 429, 500, 503].filter(isTransient)).toHaveLength(5);
    expect([200, 301, 400, 401, 404, 422].filter(isTransient)).toEqual([]);
  });
});
