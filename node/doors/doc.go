// Package doors decides which requests enter a node's listeners: for which Host, over which
// connection, and from which caller.
//
// # How it is driven
//
//	gates, err := doors.New(doors.Config{Listen: "0.0.0.0:8443", Hosts: []string{"books.example"}})
//	handler = gates.Hosts(handler)      // the API's and the admin listener's
//	err = gates.Serve(server, listener) // over TLS if there is a certificate
//	...
//	err = gates.Reload(config)          // a SIGHUP: all of the new settings, or none of them
//
// # What always holds
//
//   - A request is served only if its Host is a loopback name or address, the address that the
//     connection arrived at, the configured address, one of Config.Hosts, or a name in
//     the node's certificate. A page of another name that resolves to the node's address (DNS
//     rebinding) gets an error that names the setting.
//   - Certificates are read again when their files change. If the new ones cannot be used, the node
//     keeps the ones that it has, and says so in its log.
//   - An issuer of tokens that publishes its keys is asked when a token needs one: with a deadline,
//     for a bounded answer, over TLS, and once a minute at most.
//   - A client that sends plain HTTP where TLS is served gets a 400 that says so.
//   - Every refusal says what the reader can change.
//   - Reload changes everything or nothing. A request sees one state of the settings.
package doors
