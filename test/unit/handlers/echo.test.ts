import { describe, expect, it } from 'vitest';
import echo from '../../../handlers/echo.ts';

describe('echo', () => {
  it('returns its input', async () => {
    const input = { text: 'ein Echo', list: [1, null, { deep: true }] };

    expect(await echo({ id: 'j', input })).toBe(input);
  });
});
