package pgtest

// EmptyClusterIn is emptyClusterIn.
var EmptyClusterIn = emptyClusterIn

// CopyCluster is copyCluster.
var CopyCluster = copyCluster
