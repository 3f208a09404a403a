// Renders the completion script of fish. Pure.
import type { CompletionContext, CompletionTable } from './completion-table.ts';
import { quoteFish } from './quote.ts';

export function renderFish(table: CompletionTable): string {
  const paths = table.flatMap(({ path }) => (path === '' ? [] : [quoteFish(path)]));
  return `# fish completion of millrace; made by \`millrace completion fish\`
function __millrace_at
    set -l at ''
    for word in (commandline -opc)[2..-1]
        set -l next (string trim -- "$at $word")
        if contains -- "$next" ${paths.join(' ')}
            set at $next
        end
    end
    test "$at" = "$argv[1]"
end
complete -c millrace -f
${table.flatMap(describe).join('\n')}
`;
}

function describe({ commands, options, path, takesFiles }: CompletionContext): string[] {
  const at = `complete -c millrace -n ${quoteFish(`__millrace_at '${path}'`)}`;
  return [
    ...(takesFiles ? [`${at} -F`] : []),
    ...commands.map(({ help, word }) => `${at} -a ${word} -d ${quoteFish(help)}`),
    ...options.map(({ choices, help, isValued, word }) => {
      const value = choices.length > 0 ? ` -x -a ${quoteFish(choices.join(' '))}` : ' -r -F';
      return `${at} -l ${word.slice(2)}${isValued ? value : ''} -d ${quoteFish(help)}`;
    }),
  ];
}
