// Renders the completion script of bash. Pure.
import type { CompletionTable } from './completion-table.ts';
import { quote } from './quote.ts';

export function renderBash(table: CompletionTable): string {
  const paths = table.flatMap(({ path }) => (path === '' ? [] : [quote(path)]));
  const words = table.map(({ commands, options, path }) => {
    const names = commands.map(({ word }) => word).join(' ');
    const flags = options.map(({ word }) => word).join(' ');
    const valued = options.filter(({ isValued }) => isValued).map(({ word }) => word);
    const values = `commands=${quote(names)} flags=${quote(flags)} valued=${quote(` ${valued.join(' ')} `)}`;
    return `    ${quote(path)}) ${values} ;;`;
  });
  const choices = table.flatMap(({ options, path }) =>
    options
      .filter((option) => option.choices.length > 0)
      .map((option) => {
        const key = quote(`${path} ${option.word}`);
        return `      ${key}) choices=${quote(option.choices.join(' '))} ;;`;
      }),
  );
  return `# bash completion of millrace; made by \`millrace completion bash\`
_millrace() {
  local current=\${COMP_WORDS[COMP_CWORD]} before=\${COMP_WORDS[COMP_CWORD-1]}
  local at= next i commands= flags= valued= choices=
  # bash splits --flag=value at the equals sign.
  if [[ $current == = ]]; then
    current=
  elif [[ $before == = ]]; then
    before=\${COMP_WORDS[COMP_CWORD-2]}
  fi
  for ((i = 1; i < COMP_CWORD; i++)); do
    next="\${at:+$at }\${COMP_WORDS[i]}"
    case "$next" in
      ${paths.join(' | ')}) at=$next ;;
    esac
  done
  case "$at" in
${words.join('\n')}
  esac
  if [[ $valued == *" $before "* ]]; then
    case "$at $before" in
${choices.join('\n')}
    esac
    # Without known values, bash completes files.
    [[ -n $choices ]] && COMPREPLY=($(compgen -W "$choices" -- "$current"))
    return
  fi
  [[ $current == -* ]] && commands=$flags
  COMPREPLY=($(compgen -W "$commands" -- "$current"))
}
complete -o default -F _millrace millrace
`;
}
