"""The tests of RFC 2889: address table, learning rate, broadcast, forward pressure."""
