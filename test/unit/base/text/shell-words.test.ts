import { spawnSync } from 'node:child_process';
import { describe, expect, it } from 'vitest';
import { quoteWord, ShellWordsError, splitWords } from '../../../../src/base/text/shell-words.ts';

describe('splitting a command line', () => {
  it.each<[string, string[]]>([
    ['', []],
    ['  \t\n ', []],
    ['node app.js', ['node', 'app.js']],
    ['  a   b\tc\nd ', ['a', 'b', 'c', 'd']],
    [`'a b' "c d"`, ['a b', 'c d']],
    [`a'b'"c"d`, ['abcd']],
    [`'' "" x`, ['', '', 'x']],
    [`a\\ b \\' \\" \\\\ \\n`, ['a b', "'", '"', '\\', 'n']],
    [`'a\\b' "a\\b" "\\"" "\\\\" "\\$" "\\\`"`, ['a\\b', 'a\\b', '"', '\\', '$', '`']],
    ['a\\\nb "c\\\nd"', ['ab', 'cd']],
    ['\\\n', []],
    [`"it's" 'say "x"'`, ["it's", 'say "x"']],
    ['ünï ☃ 🙂', ['ünï', '☃', '🙂']],
  ])('reads %j', (text, words) => {
    expect(splitWords(text)).toEqual(words);
  });

  it.each(['a $HOME', '* ?', '~', '$(id) `id`', 'a;b', 'a|b &', '# no comment', '{a,b}', 'x > y'])(
    'expands nothing in %j',
    (text) => {
      expect(splitWords(text).join(' ')).toBe(text);
    },
  );

  it.each([`'open`, `"open`, `a "b\\"`, 'a \\', `"open\\`])('refuses %j', (text) => {
    expect(() => splitWords(text)).toThrow(ShellWordsError);
  });

  it('names the open quote and its position', () => {
    expect(() => splitWords(`echo "a" 'b`)).toThrow(
      "args have a ' at position 9 that is not closed",
    );
  });
});

describe('quoting a word', () => {
  const words = ['', 'plain', 'a b', "it's", '"', '\\', '$HOME `id` *', 'a\nb', "''", '-n'];

  it('returns text that splits into that word', () => {
    expect(splitWords(words.map(quoteWord).join(' '))).toEqual(words);
  });

  it('returns text that a shell reads as that word', () => {
    const script = `printf '%s\\0' ${words.map(quoteWord).join(' ')}`;
    const { stdout } = spawnSync('sh', ['-c', script], { encoding: 'utf8' });
    expect(stdout.split('\0').slice(0, -1)).toEqual(words);
  });
});
