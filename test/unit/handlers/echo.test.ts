import { describe, expect, it } from 'vitest';
import echo from '../../../handlers/echo.ts';

describe('echo', () => {
  it('answers with the very input it was given', async () => {
    const input = { text: 'ein Echo', list: [1, null, { deep: true }] };

    expect(await echo({ id: 'j', input })).toBe(input);
  });
});
