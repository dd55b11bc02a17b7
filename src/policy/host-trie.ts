/**
 * A tree of labels from the right: `*.wild.test` is `below` at test > wild, `api.wild.test` is `exact` at
 * test > wild > api.
 */
export interface HostTrie<T> {
  children: Map<string, HostTrie<T>> | undefined
  exact: T | undefined
  below: T | undefined
}

/** An empty tree. */
export function hostTrie<T>(): HostTrie<T> {
  return { children: undefined, exact: undefined, below: undefined }
}

/** The node of a canonical name, made if missing; while a tree is built. */
export function nodeFor<T>(root: HostTrie<T>, name: string): HostTrie<T> {
  let node = root
  for (const label of name.split('.').reverse()) {
    node.children ??= new Map()
    let child = node.children.get(label)
    if (child === undefined) {
      child = hostTrie<T>()
      node.children.set(label, child)
    }
    node = child
  }
  return node
}

/**
 * Appends what covers a canonical name to `found`, most general first: the wildcards above it, then its own
 * entry. Returns the number of nodes looked at, at most one per label.
 */
export function collect<T>(root: HostTrie<T>, name: string, found: T[]): number {
  let node = root
  let end = name.length
  let steps = 0
  while (end >= 0) {
    const dot = name.lastIndexOf('.', end - 1)
    const child = node.children?.get(name.slice(dot + 1, end))
    steps += 1
    if (child === undefined) return steps
    if (dot === -1) {
      if (child.exact !== undefined) found.push(child.exact)
      return steps
    }
    if (child.below !== undefined) found.push(child.below)
    node = child
    end = dot
  }
  return steps
}

/** The node of a canonical name, if there is one. */
export function findNode<T>(root: HostTrie<T>, name: string): HostTrie<T> | undefined {
  let node: HostTrie<T> | undefined = root
  for (const label of name.split('.').reverse()) node = node?.children?.get(label)
  return node
}
