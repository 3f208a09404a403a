// Renders the completion script of zsh. Pure.
import type { CompletedWord, CompletionTable } from './completion-table.ts';
import { quote } from './quote.ts';

export function renderZsh(table: CompletionTable): string {
  const paths = table.flatMap(({ path }) => (path === '' ? [] : [quote(path)]));
  const contexts = table.map(({ commands, options, path, takesFiles }) => {
    const valued = options.filter(({ isValued }) => isValued).map(({ word }) => quote(word));
    return `    (${quote(path)})
      commands=(${commands.map(describe).join(' ')})
      flags=(${options.map(describe).join(' ')})
      valued=(${valued.join(' ')})
      files=${takesFiles ? 1 : 0}
      ;;`;
  });
  const choices = table.flatMap(({ options, path }) =>
    options
      .filter((option) => option.choices.length > 0)
      .map((option) => {
        const words = option.choices.map(quote).join(' ');
        return `      (${quote(`${path} ${option.word}`)}) compadd -- ${words} ;;`;
      }),
  );
  return `#compdef millrace
# zsh completion of millrace; made by \`millrace completion zsh\`
_millrace() {
  local at= next before=$words[CURRENT-1] i files=0
  local -a commands flags valued
  for ((i = 2; i < CURRENT; i++)); do
    next="\${at:+$at }$words[i]"
    case "$next" in
      (${paths.join('|')}) at=$next ;;
    esac
  done
  case "$at" in
${contexts.join('\n')}
  esac
  if ((\${valued[(Ie)$before]})); then
    case "$at $before" in
${choices.join('\n')}
      (*) _files ;;
    esac
    return
  fi
  if [[ $words[CURRENT] == -* ]]; then
    _describe 'option' flags
  elif ((\${#commands})); then
    _describe 'command' commands
  elif ((files)); then
    _files
  fi
}
if [[ $funcstack[1] == _millrace ]]; then
  _millrace "$@"
else
  compdef _millrace millrace
fi
`;
}

/** `word:help`, in which colons of the word would have to be escaped; it has none. */
function describe({ help, word }: CompletedWord): string {
  return quote(`${word}:${help}`);
}
