// Package template reads templates of entries that people post again and again, and fills them in.
//
// A template is a small TOML file: parameters, and an entry with their names in braces.
//
//	title = "The rent of a flat"
//
//	[parameters.tenant]
//	kind = "organisation"
//
//	[parameters.rent]
//	kind = "amount"
//	default = "850.00"
//
//	[entry]
//	note = "rent of {tenant}"
//
//	[[entry.postings]]
//	account = "{tenant}:cash"
//	amount = "-{rent}"
//	asset = "EUR"
//
//	[[entry.postings]]
//	account = "house:rents"
//	amount = "{rent}"
//	asset = "EUR"
//
// Parse checks a file, and Fill puts values in:
//
//	t, err := template.Parse("rent.toml", content)
//	entry, err := t.Fill(map[string]string{"tenant": "acme"})
//
// There is no language beyond that: no conditions, no loops, no arithmetic. A value is put in as it
// is, once: braces in it mean nothing. {{ and }} stand for braces.
//
// What holds: Parse never panics and does bounded work, whatever the file. A file that it takes
// uses every parameter, and names no other. A filled entry has valid accounts, assets and keys, and
// the amounts are the texts of the values: nothing is computed or rounded. Errors name the line of
// the file, and the parameter if there is one.
package template
