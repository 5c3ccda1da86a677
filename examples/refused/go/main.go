// What a refused producer of franz-go sees: go run . HOST:PORT TOPIC [PRODUCERS]
// Opens one producer after the other, each with one record.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// throttled prints each throttle of one producer.
type throttled int

func (number throttled) OnBrokerThrottle(_ kgo.BrokerMetadata, interval time.Duration, _ bool) {
	fmt.Printf("producer %d: throttled for %.1f s\n", number, interval.Seconds())
}

func main() {
	producers := 3
	if len(os.Args) > 3 {
		producers, _ = strconv.Atoi(os.Args[3])
	}
	for number := 1; number <= producers; number++ {
		client, err := kgo.NewClient(kgo.SeedBrokers(os.Args[1]), kgo.WithHooks(throttled(number)))
		if err != nil {
			panic(err)
		}
		began := time.Now()
		// franz-go sends a refused record again without end, unless RecordDeliveryTimeout is set.
		err = client.ProduceSync(context.Background(), &kgo.Record{Topic: os.Args[2], Value: []byte("a record")}).FirstErr()
		outcome := "acknowledged"
		if err != nil {
			outcome = fmt.Sprintf("failed: %v", err)
		}
		fmt.Printf("producer %d: %s after %.1f s\n", number, outcome, time.Since(began).Seconds())
		client.Close()
	}
}
