package doors

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"

	"connectrpc.com/connect"
)

// hosts are the names and addresses by which clients may call the node, besides loopback ones.
type hosts map[string]bool

// newHosts reads the allowed hosts: the one of the address that the node listens at, unless that is
// unspecified, and the configured ones.
func newHosts(listen string, configured []string) (hosts, error) {
	allowed := hosts{}
	if name, _, err := net.SplitHostPort(listen); err == nil && name != "" {
		if address, err := netip.ParseAddr(name); err != nil || !address.IsUnspecified() {
			allowed[normalHost(name)] = true
		}
	}
	for _, text := range configured {
		name := normalHost(text)
		if _, err := netip.ParseAddr(name); err != nil &&
			(name == "" || strings.ContainsAny(name, "/:*@[] \t")) {
			return nil, fmt.Errorf("%q is no host: write a name or an address without scheme and "+
				"port, such as books.example", text)
		}
		allowed[name] = true
	}
	return allowed, nil
}

// normalHost returns a host in the form in which hosts are compared: lower case, without the
// brackets of an IPv6 address and without the dot of a root.
func normalHost(name string) string {
	name = strings.TrimSuffix(strings.TrimPrefix(name, "["), "]")
	if address, err := netip.ParseAddr(name); err == nil {
		return address.Unmap().WithZone("").String()
	}
	return strings.ToLower(strings.TrimSuffix(name, "."))
}

// hostOf returns the host that a request is for, without its port.
func hostOf(r *http.Request) string {
	name := r.Host
	if host, _, err := net.SplitHostPort(name); err == nil {
		name = host
	}
	return normalHost(name)
}

// allow reports whether the node serves a request's host. A browser sends an address as the host
// only if the page's own origin is that address, so the address that the connection arrived at is
// always good.
func (h hosts) allow(r *http.Request) bool {
	name := hostOf(r)
	if IsLoopback(name) || h[name] {
		return true
	}
	local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !ok {
		return false
	}
	arrived, _, err := net.SplitHostPort(local.String())
	return err == nil && normalHost(arrived) == name
}

// IsLoopback reports whether a host, without a port, is a name or an address of this machine that
// other machines cannot reach.
func IsLoopback(host string) bool {
	host = normalHost(host)
	if address, err := netip.ParseAddr(host); err == nil {
		return address.IsLoopback()
	}
	return host == "localhost" || strings.HasSuffix(host, ".localhost")
}

// errorWriter writes an error in the protocol of a call.
var errorWriter = connect.NewErrorWriter()

// Hosts serves requests for the allowed hosts only. A call for another host gets PermissionDenied,
// and any other request 421.
func (d *Doors) Hosts(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		now := d.current.Load()
		if now.hosts.allow(r) || now.certificates.names(hostOf(r)) {
			next.ServeHTTP(w, r)
			return
		}
		err := fmt.Errorf("this node does not serve the host %q: if clients reach it by this "+
			"name, add the name to hosts under [api] in the node's config.toml", hostOf(r))
		Refuse(w, r, http.StatusMisdirectedRequest,
			connect.NewError(connect.CodePermissionDenied, err))
	})
}

// Refuse answers a call in its own protocol, and any other request with a status and a line.
func Refuse(w http.ResponseWriter, r *http.Request, status int, err *connect.Error) {
	// The writer takes any GET for a call.
	call := r.Method != http.MethodGet || r.URL.Query().Has("encoding")
	if call && errorWriter.IsSupported(r) {
		_ = errorWriter.Write(w, r, err) // a client that went away needs no answer
		return
	}
	http.Error(w, err.Message(), status)
}
