// Package doors decides which requests enter a node's listeners: for which Host, over which
// connection, and from which caller.
//
// # How it is driven
//
//	gates, err := doors.New(doors.Config{Listen: "0.0.0.0:8443", Hosts: []string{"books.example"}})
//	handler = gates.Hosts(handler)      // the API's and the admin listener's
//	...
//	err = gates.Reload(config)          // a SIGHUP: all of the new settings, or none of them
//
// # What always holds
//
//   - A request is served only if its Host is a loopback name or address, the address that the
//     connection arrived at, the configured address, or one of Config.Hosts. A page of another name
//     that resolves to the node's address (DNS rebinding) gets an error that names the setting.
//   - Every refusal says what the reader can change.
//   - Reload changes everything or nothing. A request sees one state of the settings.
package doors
