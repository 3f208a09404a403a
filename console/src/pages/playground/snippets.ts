// The playground's call as programs that a person can copy. The key is a variable of the environment: the page has none.
import type { Mode } from './tries.ts';

export const LANGUAGES = ['curl', 'TypeScript', 'Python'] as const;
export type Language = (typeof LANGUAGES)[number];

interface Call {
  origin: string;
  endpoint: string;
  mode: Mode;
  /** JSON text. */
  input: string;
  /** `millrace dev` needs no key. */
  needsKey: boolean;
}

export function writeSnippet(language: Language, call: Call): string {
  if (language === 'curl') return writeCurl(call);
  return language === 'TypeScript' ? writeTypeScript(call) : writePython(call);
}

function writeCurl({ endpoint, input, mode, needsKey, origin }: Call): string {
  const verb = mode === 'runsync' ? 'runsync' : 'run';
  const key = needsKey ? ` \\\n  -H "Authorization: Bearer $MILLRACE_KEY"` : '';
  const quoted = `{"input":${input}}`.replaceAll("'", `'\\''`);
  const run = `curl -s ${origin}/v2/${endpoint}/${verb}${key} \\\n  -H 'Content-Type: application/json' \\\n  -d '${quoted}'`;
  if (mode !== 'stream') return run;
  const stream = `curl -sN "${origin}/v2/${endpoint}/stream/$JOB"${key} \\\n  -H 'Accept: text/event-stream'`;
  return `JOB=$(${run} | sed 's/.*"id":"\\([^"]*\\)".*/\\1/')\n${stream}`;
}

function writeTypeScript({ endpoint, input, mode, needsKey, origin }: Call): string {
  const key = needsKey ? '\n  key: process.env.MILLRACE_KEY,' : '';
  const head = `import { createClient } from 'millrace/client';

const client = createClient({
  url: '${origin}',
  endpoint: '${endpoint}',${key}
});
`;
  if (mode === 'runsync') {
    return `${head}const { output, status } = await client.runsync(${input});\nconsole.log(status, output);`;
  }
  const run = `const { id } = await client.run(${input});`;
  const read =
    mode === 'stream'
      ? 'for await (const { output } of client.stream(id)) console.log(output);'
      : 'console.log(await client.wait(id));';
  return `${head}${run}\n${read}`;
}

function writePython({ endpoint, input, mode, needsKey, origin }: Call): string {
  const imports = needsKey ? 'import json, os, urllib.request' : 'import json, urllib.request';
  const key = needsKey ? `, "Authorization": f"Bearer {os.environ['MILLRACE_KEY']}"` : '';
  const text = JSON.stringify(input);
  const head = `${imports}

base = "${origin}/v2/${endpoint}"
headers = {"Content-Type": "application/json"${key}}

def call(path, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(base + path, data=data, headers=headers)
    with urllib.request.urlopen(request) as response:
        return json.load(response), response.headers

payload = json.loads(${text})
`;
  if (mode === 'runsync') {
    return `${head}job, _ = call("/runsync", {"input": payload})\nprint(job["status"], job.get("output"))`;
  }
  const run = 'job, _ = call("/run", {"input": payload})\n';
  if (mode === 'run') {
    return `${head}${run}job, _ = call(f"/status/{job['id']}?wait=300000")\nprint(job["status"], job.get("output"))`;
  }
  return `${head}${run}after = "0"
while True:
    chunks, answer = call(f"/stream/{job['id']}?after={after}")
    for chunk in chunks:
        print(chunk["output"])
    if not chunks and answer["Millrace-Status"] not in ("IN_QUEUE", "IN_PROGRESS"):
        break
    after = answer["Millrace-Next"]`;
}
